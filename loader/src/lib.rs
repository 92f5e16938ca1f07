//! Providers that are shared libraries of others (fi_provider(3), FI_PROVIDER_PATH): finds their
//! files, tries each new one in a helper process, loads them, and decides which provider a name
//! means. They speak C: only the C library uses this crate, and calls them through the types of
//! `abi`.
//!
//! Nothing is loaded unless a folder has a file that ends in `fi.so`.
#![deny(unsafe_code)]

mod choose;
mod places;
mod state;
mod table;
mod trial;
mod verdicts;

pub use choose::{Layers, core_only, is_layer, is_offload, rank};
pub use places::{Candidate, Found, Settings, candidates};
pub use state::{Held, Loaded, Refused, State, clean_up, hold, loaded, serve};
pub use table::{Infos, Provider};
pub use trial::LIMIT;
