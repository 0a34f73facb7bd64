"""What one study needs and no other: its contenders, its findings in words, its figures."""
