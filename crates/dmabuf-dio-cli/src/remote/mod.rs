// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects of stores and web servers in place of files: the feature `remote`.

#[cfg(feature = "remote")]
mod object;
#[cfg(feature = "remote")]
mod save;
#[cfg(feature = "remote")]
pub(crate) mod sum;
#[cfg(not(feature = "remote"))]
mod without;

#[cfg(feature = "remote")]
pub(crate) use self::object::{folder, list, open};
#[cfg(feature = "remote")]
pub(crate) use self::save::run as save;
#[cfg(not(feature = "remote"))]
pub(crate) use self::without::{folder, list, open, save};
