"""`python -m sapwood.cli` is the `sapwood` command."""

from sapwood.cli import main

if __name__ == "__main__":
    main()
