// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of trying a backend.

use crate::backend::{Backend, Refusal};
use crate::error::Error;

/// Why a backend did not complete a request.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The backend is not available here. A backend that refuses has moved no data, so another one
    /// may be tried.
    Refused(Refusal),
    /// The input or the hardware is at fault: every backend would fail.
    Failed(Error),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Attempt {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Attempt {
    /// For callers that only check whether the backend is available.
    pub(crate) fn into_refusal(self, backend: Backend) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Failed(error) => {
                let refusal = backend.refuse(error.to_string()).remedy(error.hint().to_string());
                Refusal { errno: error.errno(), ..refusal }
            }
        }
    }
}
