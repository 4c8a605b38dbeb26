//! Expectations about the calls of a run.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};

use tool_core::signatures::CallPattern;

use crate::failure::CheckError;
use crate::seen::Seen;

/// Expectations about the calls of a run, in the order in which its model requested them. [`check`](Self::check) says whether they hold.
///
/// The calls are those of the agent itself; [`inside`](Self::inside) leads to those of an agent that its calls asked.
#[must_use = "nothing is compared until `check` is called"]
pub struct CheckCalls {
    all: Vec<Seen>,
    /// The tools that lead to the agent.
    agents: Vec<String>,
    expected: Vec<Expected>,
}

struct Expected {
    /// The agent whose calls are compared.
    agents: Vec<String>,
    what: What,
}

enum What {
    First(CallPattern),
    Then(CallPattern),
    Next(CallPattern),
    AnyOrder(Vec<CallPattern>),
    Times(CallPattern, (Bound<usize>, Bound<usize>)),
    NoOther(Vec<CallPattern>),
}

impl CheckCalls {
    pub(crate) fn new(all: Vec<Seen>) -> Self {
        Self { all, agents: Vec::new(), expected: Vec::new() }
    }

    fn expect(mut self, what: What) -> Self {
        self.expected.push(Expected { agents: self.agents.clone(), what });
        self
    }

    /// Expects that the first call is this one.
    pub fn first(self, call: CallPattern) -> Self {
        self.expect(What::First(call))
    }

    /// Expects this call somewhere behind the one that was expected before, or anywhere if none was. It is the first one that matches; the
    /// expectations that follow begin behind it.
    pub fn then(self, call: CallPattern) -> Self {
        self.expect(What::Then(call))
    }

    /// Expects this call directly behind the one that was expected before.
    pub fn next(self, call: CallPattern) -> Self {
        self.expect(What::Next(call))
    }

    /// Expects these calls, in any order, behind the one that was expected before. Each of them is another call.
    pub fn any_order(self, calls: impl IntoIterator<Item = CallPattern>) -> Self {
        self.expect(What::AnyOrder(calls.into_iter().collect()))
    }

    /// Expects that no call matches.
    pub fn never(self, call: CallPattern) -> Self {
        self.times(call, 0..=0)
    }

    /// Expects that the number of calls that match is in this range, such as `1..=2`.
    pub fn times(self, call: CallPattern, times: impl RangeBounds<usize>) -> Self {
        self.expect(What::Times(call, (times.start_bound().cloned(), times.end_bound().cloned())))
    }

    /// Expects that each call matches one of these.
    pub fn only(self, calls: impl IntoIterator<Item = CallPattern>) -> Self {
        self.expect(What::NoOther(calls.into_iter().collect()))
    }

    /// Goes to the calls of an agent that a call of this tool asked, which have an order of their own. If several calls asked it, to those of
    /// all. The check fails if no call is of this tool, so that a wrong name does not pass.
    pub fn inside(mut self, tool: impl Into<String>) -> Self {
        self.agents.push(tool.into());
        self
    }

    /// Goes back from the agent inside to the one that asked it.
    pub fn outside(mut self) -> Self {
        self.agents.pop();
        self
    }

    /// Compares the expectations with the calls, one after the other.
    ///
    /// # Errors
    ///
    /// Fails if one does not hold. The error shows all of them beside the calls, and says why the first one does not hold.
    pub fn check(self) -> Result<(), CheckError> {
        let mut positions = HashMap::new();
        for (number, expected) in self.expected.iter().enumerate() {
            if let Some(why) = self.unknown_agent(&expected.agents) {
                return Err(self.error(number, &expected.agents, &[], &why, None));
            }
            let calls: Vec<_> = self.all.iter().filter(|call| call.agents == expected.agents).collect();
            if let Err((why, at)) =
                expected.what.compare(&calls, positions.entry(&expected.agents).or_default())
            {
                return Err(self.error(number, &expected.agents, &calls, &why, at));
            }
        }
        Ok(())
    }

    /// Returns the reason why these tools lead to no agent, if they do not.
    fn unknown_agent(&self, agents: &[String]) -> Option<String> {
        let is_called = |depth: &usize| {
            self.all.iter().any(|call| call.agents == agents[..*depth] && call.is_named(&agents[*depth]))
        };
        let depth = (0..agents.len()).find(|depth| !is_called(depth))?;
        Some(format!("no call asked `{}`", agents[depth]))
    }

    fn error(
        &self,
        failed: usize,
        agents: &[String],
        calls: &[&Seen],
        why: &str,
        at: Option<usize>,
    ) -> CheckError {
        let of = if agents.is_empty() { String::new() } else { format!(" of `{}`", agents.join("/")) };
        let expected = self.expected.iter().enumerate().map(|(number, expected)| {
            let mark = if number == failed { '>' } else { ' ' };
            let inside = if expected.agents.is_empty() {
                String::new()
            } else {
                format!("{}: ", expected.agents.join("/"))
            };
            format!("{mark} {inside}{}", expected.what.describe())
        });
        let called = calls.iter().enumerate().map(|(number, call)| {
            let mark = if Some(number) == at { '>' } else { ' ' };
            format!("{mark} {}", call.line())
        });
        let why = format!("the calls{of} are not as expected: {why}");
        CheckError::of_calls(&why, &expected.collect::<Vec<_>>(), &called.collect::<Vec<_>>())
    }
}

/// Omits the calls, whose arguments can be secret.
impl fmt::Debug for CheckCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected.iter().map(|expected| expected.what.describe());
        f.debug_struct("CheckCalls").field("expected", &expected.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Why an expectation does not hold, and the call that does not fit.
type Mismatch = (String, Option<usize>);

impl What {
    fn describe(&self) -> String {
        let list =
            |calls: &[CallPattern]| calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ");
        match self {
            Self::First(call) => format!("first {call}"),
            Self::Then(call) => format!("then {call}"),
            Self::Next(call) => format!("next {call}"),
            Self::AnyOrder(calls) => format!("in any order {}", list(calls)),
            Self::Times(call, (Bound::Included(0), Bound::Included(0))) => format!("never {call}"),
            Self::Times(call, range) => format!("{} {call}", describe_range(*range)),
            Self::NoOther(calls) => format!("only {}", list(calls)),
        }
    }

    /// Compares the expectation with the calls of its agent. `position` is behind the call that was expected before.
    fn compare(&self, calls: &[&Seen], position: &mut usize) -> Result<(), Mismatch> {
        match self {
            Self::First(call) => at(calls, 0, call).map(|()| *position = 1),
            Self::Next(call) => at(calls, *position, call).map(|()| *position += 1),
            Self::Then(call) => {
                let found = (*position..calls.len()).find(|index| calls[*index].mismatch(call).is_none());
                match found {
                    Some(index) => *position = index + 1,
                    None => return Err(none_behind(calls, *position, call)),
                }
                Ok(())
            }
            Self::AnyOrder(expected) => {
                let begin = *position;
                match assign(expected, &calls[begin..]) {
                    Ok(last) => *position = begin + last,
                    Err(missing) => {
                        let missing = &expected[missing];
                        if calls[begin..].iter().any(|call| call.mismatch(missing).is_none()) {
                            return Err((format!("no further call is `{missing}`"), None));
                        }
                        return Err(none_behind(calls, begin, missing));
                    }
                }
                Ok(())
            }
            Self::Times(call, range) => {
                let matching: Vec<_> =
                    (0..calls.len()).filter(|index| calls[*index].mismatch(call).is_none()).collect();
                match range.contains(&matching.len()) {
                    true => Ok(()),
                    false => {
                        let why = format!(
                            "`{call}` matches {} of them, expected {}",
                            matching.len(),
                            describe_range(*range)
                        );
                        Err((why, matching.last().copied()))
                    }
                }
            }
            Self::NoOther(expected) => {
                let is_other =
                    |index: &usize| expected.iter().all(|call| calls[*index].mismatch(call).is_some());
                match (0..calls.len()).find(is_other) {
                    None => Ok(()),
                    Some(index) => {
                        let same = expected.iter().find(|call| calls[index].is_of(call));
                        let why = same.and_then(|call| calls[index].mismatch(call));
                        let why = why.unwrap_or_else(|| "no pattern is of its tool".to_owned());
                        Err((format!("call {} matches none of the patterns: {why}", index + 1), Some(index)))
                    }
                }
            }
        }
    }
}

/// Checks that the call at an index is the expected one.
fn at(calls: &[&Seen], index: usize, expected: &CallPattern) -> Result<(), Mismatch> {
    let number = index + 1;
    match calls.get(index).map(|call| call.mismatch(expected)) {
        Some(None) => Ok(()),
        Some(Some(why)) => Err((format!("call {number} is not `{expected}`: {why}"), Some(index))),
        None => {
            Err((format!("`{expected}` is expected as call {number}, and there are {}", calls.len()), None))
        }
    }
}

/// Says that no call from an index on matches, and why the nearest one does not.
fn none_behind(calls: &[&Seen], begin: usize, expected: &CallPattern) -> Mismatch {
    let behind = if begin == 0 { String::new() } else { format!(" behind call {begin}") };
    let near = (begin..calls.len()).find(|index| calls[*index].is_of(expected));
    let why = near.and_then(|index| calls[index].mismatch(expected));
    match (near, why) {
        (Some(index), Some(why)) => {
            (format!("no call{behind} is `{expected}`: {why} in call {}", index + 1), Some(index))
        }
        _ if calls[..begin.min(calls.len())].iter().any(|call| call.mismatch(expected).is_none()) => {
            (format!("no call{behind} is `{expected}`, but one before is"), None)
        }
        _ => (format!("no call{behind} is `{expected}`"), None),
    }
}

/// Assigns each pattern another call. Returns the number of calls that suffice, or the index of a pattern for which none is left.
fn assign(patterns: &[CallPattern], calls: &[&Seen]) -> Result<usize, usize> {
    let mut missing = None;
    let sufficient = (0..=calls.len()).find(|length| {
        missing = pattern_without_call(patterns, &calls[..*length]);
        missing.is_none()
    });
    sufficient.ok_or(missing.unwrap_or_default())
}

/// Returns the index of a pattern for which no call is left if each pattern is assigned another one.
fn pattern_without_call(patterns: &[CallPattern], calls: &[&Seen]) -> Option<usize> {
    let mut owners: Vec<Option<usize>> = vec![None; calls.len()];
    let mut has_call =
        |pattern| find_call(pattern, patterns, calls, &mut owners, &mut vec![false; calls.len()]);
    (0..patterns.len()).find(|pattern| !has_call(*pattern))
}

/// Finds a call for a pattern, for which others may move to other calls.
fn find_call(
    pattern: usize,
    patterns: &[CallPattern],
    calls: &[&Seen],
    owners: &mut [Option<usize>],
    visited: &mut [bool],
) -> bool {
    for (index, call) in calls.iter().enumerate() {
        if visited[index] || call.mismatch(&patterns[pattern]).is_some() {
            continue;
        }
        visited[index] = true;
        if owners[index].is_none_or(|owner| find_call(owner, patterns, calls, owners, visited)) {
            owners[index] = Some(pattern);
            return true;
        }
    }
    false
}

fn describe_range(range: (Bound<usize>, Bound<usize>)) -> String {
    let lowest = match range.0 {
        Bound::Included(lowest) => lowest,
        Bound::Excluded(lowest) => lowest + 1,
        Bound::Unbounded => 0,
    };
    let highest = match range.1 {
        Bound::Included(highest) => Some(highest),
        Bound::Excluded(0) => return "fewer than 0 times".to_owned(),
        Bound::Excluded(highest) => Some(highest - 1),
        Bound::Unbounded => None,
    };
    match highest {
        Some(highest) if highest == lowest => format!("{lowest} times"),
        Some(highest) => format!("{lowest} to {highest} times"),
        None => format!("at least {lowest} times"),
    }
}
