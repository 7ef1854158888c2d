//! Traces as files.
//!
//! A [`TraceFile`] is a program of the core and, if it came from a host, [`HostData`]: plain data
//! from which the host makes its own objects again. Nothing here knows Python or runs anything;
//! what the data means is the host's business, and the rules for it are in [`model`].

#![forbid(unsafe_code)]

pub mod binary;
pub mod difference;
pub mod error;
pub mod model;
pub mod optimize;
pub mod statistics;
pub mod text;

pub use error::FormatError;
pub use model::{HostData, HostOp, Node, NodeId, Nodes, TraceFile};

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
