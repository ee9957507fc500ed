"""The commands of access control, quotas, and logins. Each module has those of one noun."""
