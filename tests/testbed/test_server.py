import socket
import subprocess
import sys

from testbed.ports import free_port
from testbed.server import Server
from tests.killed import ROOT, outlives_its_run

# A test run in small: it starts a server, from a thread that ends, says its pid, and waits to be killed.
RUN = """
import sys, threading
from pathlib import Path
from testbed.server import Server

server = Server("sleeper", Path(sys.argv[1]))
starter = threading.Thread(target=server.launch, args=(["/bin/sh", "-c", "echo up; exec sleep 600"],))
starter.start()
starter.join()
server.wait_until(lambda: "up" in server.last_words())
print(server.pid, flush=True)
sys.stdin.read()
"""


def test_a_server_dies_with_a_test_run_that_is_killed_but_not_with_the_thread_that_asked_for_it(tmp_path):
    assert not outlives_its_run(RUN, tmp_path)


def test_stop_lets_a_server_end_in_order(tmp_path):
    server = Server("polite", tmp_path)
    server.launch(["/bin/sh", "-c", "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.02; done"])
    server.wait_until(lambda: "up" in server.last_words())
    server.stop()
    assert server.last_words().endswith("bye")
    assert not server.running


def test_a_port_comes_round_again_only_after_200_others():
    ports = [free_port() for _ in range(600)]
    assert all(len(set(ports[start : start + 200])) == 200 for start in range(400))


def test_a_port_in_use_is_not_given():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its last user may just be gone
        taken = free_port()
        server.bind(("127.0.0.1", taken))
        server.listen()
        assert taken not in {free_port() for _ in range(300)}


def test_two_processes_are_given_no_port_in_common():
    say = "print(*(free_port() for _ in range(300)), flush=True)"
    script = f"from testbed.ports import free_port; {say}; input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = {free_port() for _ in range(300)}
        other.communicate(b"\n")
    assert theirs
    assert ours.isdisjoint(theirs)
