"""`loragate init`: the settings file of a new installation, and its systemd unit."""
