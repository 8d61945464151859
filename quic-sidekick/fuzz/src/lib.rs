//! Fuzz targets for the quACK, parity, protocol and captured frames. Each is an example of this
//! package, which `run` builds and starts.
