"""`emulator`: sandboxes of AWS's Runtime Interface Emulator on this machine, each with the handler as a function in it."""
