"""Where objects lie: the embedded S3 server, locations, child processes, the testbed."""
