"""The ``paceline`` command: the same Rust code as the binary that cargo builds."""

import signal
import sys

from paceline import _native


def main() -> None:
    """Run the command line and exit with its status."""
    # The command has its own way to stop; until it is in place, Ctrl-C simply ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.main(["paceline", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
