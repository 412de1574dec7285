"""MLflow as the store: runs, the ledger of claims, versions, decisions and aliases."""
