// Stands in for a library that LibTorch is linked with and that we do not use: a call of it ends the process by name.
