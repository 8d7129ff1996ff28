"""From a folder of weights to an executor: loading, families, fingerprint, runner, linears."""
