"""The command line: `fedivon COMMAND`, or `python -m fedivon_app.cli COMMAND`."""
