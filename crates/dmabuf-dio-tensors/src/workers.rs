// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs jobs in a few threads. The first error stops all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, Builder};
use std::time::Duration;

use dmabuf_dio::CancelToken;

/// How often the caller's token is checked.
const TICK: Duration = Duration::from_millis(20);

/// The results of jobs 0 to `jobs - 1`, in order. `work` gets the number of its job and the token to
/// watch. `None` in place of a result: the job was not started, because `cancel` came first.
///
/// # Errors
///
/// The first error of a job.
pub(crate) fn run<T: Send, E: Send>(
    jobs: usize,
    threads: usize,
    cancel: &CancelToken,
    work: impl Fn(usize, &CancelToken) -> Result<T, E> + Sync,
) -> Result<Vec<Option<T>>, E> {
    if jobs <= 1 || threads <= 1 {
        return (0..jobs).map(|job| work(job, cancel).map(Some)).collect();
    }
    // The caller's token must not be cancelled by an error.
    let token = CancelToken::new();
    let next = AtomicUsize::new(0);
    let worker = |sender: mpsc::Sender<(usize, Result<T, E>)>| {
        while !token.is_cancelled() && !cancel.is_cancelled() {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                break;
            }
            let result = work(job, &token);
            let failed = result.is_err();
            // This error is sent before the others are stopped, so that their errors come behind it.
            let _ = sender.send((job, result));
            if failed {
                token.cancel();
            }
        }
    };
    let mut results: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
    let mut error = None;
    let mut keep = |(job, result): (usize, Result<T, E>)| match result {
        Ok(result) => results[job] = Some(result),
        Err(found) => error = error.take().or(Some(found)),
    };
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let named = || Builder::new().name("dmabuf-dio-load".into());
        let started = (0..threads.min(jobs))
            .map(|_| sender.clone())
            .map(|sender| named().spawn_scoped(scope, || worker(sender)))
            .take_while(Result::is_ok)
            .count();
        if started == 0 {
            // There may be no more threads: this one has to do.
            worker(sender);
        } else {
            drop(sender);
        }
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(result) => keep(result),
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => token.cancel(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    error.map_or(Ok(results), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        for threads in [1, 3, 100] {
            let found = run(20, threads, &CancelToken::new(), |job, _| Ok::<_, ()>(job * job));
            let found: Vec<_> = found.expect("no error").into_iter().flatten().collect();
            assert_eq!(found, (0..20).map(|job| job * job).collect::<Vec<_>>());
        }
        assert!(
            run(0, 4, &CancelToken::new(), |_, _| Err::<(), _>(())).expect("no job").is_empty()
        );
    }

    #[test]
    fn error_stops_the_workers_and_not_the_caller() {
        let cancel = CancelToken::new();
        let result = run(4, 4, &cancel, |job, token| {
            if job == 2 {
                return Err("two");
            }
            while !token.is_cancelled() {
                thread::yield_now();
            }
            Err("stopped")
        });
        assert_eq!(result, Err::<Vec<Option<()>>, _>("two"));
        assert!(!cancel.is_cancelled());
    }

    #[test]
    fn cancelled_caller_stops_all_workers() {
        let cancel = CancelToken::new();
        let started = AtomicUsize::new(0);
        let result = run(8, 2, &cancel, |_, token| {
            if started.fetch_add(1, Ordering::Relaxed) == 1 {
                cancel.cancel();
            }
            while !token.is_cancelled() {
                thread::yield_now();
            }
            Ok::<_, ()>(())
        });
        assert_eq!(result.expect("no error").into_iter().flatten().count(), 2);
    }
}
