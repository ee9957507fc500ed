"""Workers as a part of a process: in a web service, in a command, and before an orchestrator."""
