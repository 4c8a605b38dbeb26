//! The processor's time of this thread alone, noted on the way: the tools are called with the number of the call.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The calls at which the time is noted.
pub(crate) const NOTED: [u32; 6] = [5, 15, 50, 150, 190, 200];

thread_local! {
    static NOTES: Cell<[Duration; NOTED.len()]> = const { Cell::new([Duration::ZERO; NOTED.len()]) };
}

/// How long this thread has been at work.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("the time began at zero")
}

/// A call is made: notes the time, if it is one at which it is noted.
pub(crate) fn pass(call: u32) {
    if let Some(position) = NOTED.iter().position(|noted| *noted == call) {
        NOTES.with(|notes| {
            let mut times = notes.get();
            times[position] = of_this_thread();
            notes.set(times);
        });
    }
}

/// The times that were noted last on this thread.
pub(crate) fn notes() -> [Duration; NOTED.len()] {
    NOTES.get()
}
