//! Makes the version of the interpreter known as `cfg(Py_3_11)` and the like.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
