//! The engine for Python: conversions and one map of errors, no policy.
//!
//! Nothing here sleeps. Where a call has to wait, Python does it, by its own means and so that
//! signals and cancellation work as everywhere else in Python.
#![allow(missing_docs)] // Documented in `_native.pyi`, which is checked against this module.

mod bell;
mod cache;
mod canonical;
mod config;
mod convert;
mod copies;
mod detect;
mod guard;
mod limiter;
mod paced;
mod permit;
mod retry;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Runs the `paceline` command with these arguments, the program's name first.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<String>) -> u8 {
    py.detach(|| paceline_cli::run(argv))
}

/// Runs a simulation, said in pairs of the command's options and their values, and tells its report as JSON.
#[pyfunction]
fn simulate(py: Python<'_>, pairs: paceline_cli::simulate::Pairs) -> PyResult<String> {
    let told = py.detach(|| {
        let report =
            paceline_cli::simulate::from_pairs(&pairs).map_err(|error| error.to_string())?;
        serde_json::to_string(&report).map_err(|error| error.to_string())
    });
    told.map_err(PyValueError::new_err)
}

/// Closes what a child must not inherit.
#[pyfunction]
fn before_fork(py: Python<'_>) {
    py.detach(paceline::before_fork);
}

/// Goes on in the parent.
#[pyfunction]
fn after_fork_in_parent() {
    paceline::after_fork_in_parent();
}

/// Forgets, in a child, who waited in the parent.
#[pyfunction]
fn after_fork_in_child() {
    paceline::after_fork_in_child();
}

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::bell::end_waits;
    #[pymodule_export]
    use super::cache::{Answer, Cache, Recording, is_volatile_cookie};
    #[pymodule_export]
    use super::config::Config;
    #[pymodule_export]
    use super::detect::detect;
    #[pymodule_export]
    use super::guard::{Cost, Guard, LlmCall, Watch};
    #[pymodule_export]
    use super::limiter::{Acquisition, Limiter, Ready, VirtualClock};
    #[pymodule_export]
    use super::main;
    #[pymodule_export]
    use super::paced::Paced;
    #[pymodule_export]
    use super::permit::{Permit, Waiter};
    #[pymodule_export]
    use super::retry::RetryPolicy;
    #[pymodule_export]
    use super::{after_fork_in_child, after_fork_in_parent, before_fork, simulate};
}
