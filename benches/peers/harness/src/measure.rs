//! The CPU time and the peak memory of this process.

use std::sync::Mutex;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The calls of a run at which the time is recorded: pairs around the 10th, 50th and 200th turn.
const RECORDED_CALLS: [u32; 6] = [5, 15, 45, 55, 190, 200];

static TIMES: Mutex<[Duration; 6]> = Mutex::new([Duration::ZERO; 6]);

/// Returns the CPU time of all threads of this process.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("CPU time is not negative")
}

pub(crate) fn record_call(call: u32) {
    if let Some(position) = RECORDED_CALLS.iter().position(|recorded| *recorded == call) {
        TIMES.lock().expect("no thread panics")[position] = cpu_time();
    }
}

/// Returns the microseconds of a turn about the 10th, the 50th and the 200th call of the last run.
pub(crate) fn recorded_turns() -> [f64; 3] {
    let times = TIMES.lock().expect("no thread panics");
    [0, 2, 4].map(|first| {
        let turns = RECORDED_CALLS[first + 1] - RECORDED_CALLS[first];
        (times[first + 1] - times[first]).as_secs_f64() * 1e6 / f64::from(turns)
    })
}

/// Returns the peak memory of this process in KiB.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak is reported");
    line.trim().trim_end_matches(" kB").parse().expect("the peak is a number")
}

pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
