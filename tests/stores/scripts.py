"""Python in processes of its own: to be killed, measured, deprived of its rights, or raced against each
other.
"""

import os
import subprocess
import sys
import textwrap


def _command(script, arguments):
    return [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run_script(script, *arguments):
    return subprocess.run(
        _command(script, arguments),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


CREATING = """
    import sys
    from pathlib import Path
    from rootcellar.errors import AlreadyExistsError
    from rootcellar.stores import AMBIENT, Create, DirectoryCredentials, open_store

    url, credentials, racer, rounds = sys.argv[1:]
    store = open_store(url, credentials=DirectoryCredentials(Path(credentials)) if credentials else AMBIENT)
    store.probe()
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(rounds)):
        try:
            store.put(f"v2/{number}", [racer.encode()], condition=Create())
            print(number)
        except AlreadyExistsError:
            pass
"""


def race_to_create(url, credentials, racers, rounds):
    """Processes that create `v2/0`, `v2/1`, ... in the same store at the same time, each with its number as
    the content.  Gives what each believes to have created.
    """
    processes = [
        subprocess.Popen(
            _command(CREATING, (url, credentials, racer, rounds)),
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for racer in range(racers)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=120)[0].split() for process in processes]
