"""`python -m moac` is `moac`. What takes time is imported where Ctrl-C is answered in one line."""

import signal
import sys


def main() -> int:
    """Run one command."""
    try:
        from moac.cli.main import main

        code = main()
        sys.stdout = sys.stderr  # what environments print as the process ends follows no result
        return code
    except KeyboardInterrupt:  # before the command line itself was imported
        sys.stderr.write("moac: interrupted.\n")
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only Python itself is left to end


if __name__ == "__main__":
    sys.exit(main())
