"""`python -m topospread` is the command `topospread`."""

from topospread.cli.main import main

if __name__ == "__main__":
    main()
