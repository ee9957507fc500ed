"""The security of the embedded cluster: listeners, logins, authorization, and quotas."""
