"""Who may connect and call: certificates, keys, and the files that they come from."""
