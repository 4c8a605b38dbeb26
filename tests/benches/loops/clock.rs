//! The CPU time of the current thread, recorded at certain calls: tools receive the number of the call.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The calls at which the time is recorded.
pub(crate) const RECORDED_CALLS: [u32; 6] = [5, 15, 50, 150, 190, 200];

thread_local! {
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    static TIMES: Cell<[Duration; RECORDED_CALLS.len()]> = const { Cell::new([Duration::ZERO; RECORDED_CALLS.len()]) };
}

/// Returns the CPU time of the current thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("CPU time is not negative")
}

/// Lets the current thread record times. Valgrind does not know the clock.
pub(crate) fn start_recording() {
    IS_RECORDING.set(true);
}

/// Records the time if this is one of the calls in [`RECORDED_CALLS`].
pub(crate) fn record_call(call: u32) {
    if !IS_RECORDING.get() {
        return;
    }
    if let Some(position) = RECORDED_CALLS.iter().position(|recorded| *recorded == call) {
        TIMES.with(|recorded| {
            let mut times = recorded.get();
            times[position] = thread_cpu_time();
            recorded.set(times);
        });
    }
}

/// Returns the times last recorded on the current thread.
pub(crate) fn recorded_times() -> [Duration; RECORDED_CALLS.len()] {
    TIMES.get()
}
