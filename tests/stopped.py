"""A process that stands still at a place that its test chose."""

import signal
import threading


def stop_here():
    """Stop this whole process (SIGSTOP), and this thread before its next statement, until SIGCONT.

    A signal to the process would not do: the kernel gives it to the main thread, and another one that sent it
    mostly runs on for a while.  One to the sending thread it meets on its way back from the call.
    """
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
