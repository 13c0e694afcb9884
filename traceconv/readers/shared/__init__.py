"""What two or more families of readers use."""
