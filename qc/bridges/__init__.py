"""qc as a step of other toolchains: each module needs the package that it is named after."""
