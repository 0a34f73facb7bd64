"""What makes reading arrays from object storage slow: emulate it, trace it, predict it, decide."""
