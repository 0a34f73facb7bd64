"""What a traced program imports before its own code: this folder is on its path."""
