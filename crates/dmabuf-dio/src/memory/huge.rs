// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the system offers in huge pages, and what would change that.

/// What says whether memfds get huge pages.
const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The value of [`SHMEM_ENABLED`] that is in force.
pub(crate) fn shmem_enabled() -> Option<String> {
    let text = std::fs::read_to_string(SHMEM_ENABLED).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Whether a memfd comes in huge pages also where nobody asks for them.
pub(crate) fn memfds_are_huge() -> bool {
    shmem_enabled().is_some_and(|value| huge_unasked(&value))
}

/// Whether a memfd comes in huge pages where it is asked to.
pub(crate) fn memfds_get_huge_pages() -> bool {
    shmem_enabled().is_some_and(|value| huge_unasked(&value) || value == "advise")
}

/// What would give memfds transparent huge pages where they have none, or else reserved ones.
pub(crate) fn shared_huge_remedy() -> String {
    if thp_is_switched_off() {
        THP_SWITCHED_OFF.into()
    } else if shmem_enabled().is_some() {
        format!("echo advise | sudo tee {SHMEM_ENABLED}")
    } else {
        "sudo sysctl vm.nr_overcommit_hugepages=4096".into()
    }
}

/// What would give memory of this process alone transparent huge pages where it has none.
pub(crate) fn private_huge_remedy() -> &'static str {
    if thp_is_switched_off() {
        THP_SWITCHED_OFF
    } else {
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    }
}

const THP_SWITCHED_OFF: &str = "start this process without prctl(PR_SET_THP_DISABLE), which it has \
                                inherited or called: THP_enabled in /proc/self/status is 0";

/// Whether this process has none, whatever the settings of the system are. (3 says that it has them
/// where it asks for them, as is done here.)
fn thp_is_switched_off() -> bool {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0_u64, 0_u64, 0_u64, 0_u64) == 1 }
}

fn huge_unasked(shmem_enabled: &str) -> bool {
    ["always", "within_size", "force"].contains(&shmem_enabled)
}
