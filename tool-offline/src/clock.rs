//! Times relative to the present, such as "10 minutes from now".
//!
//! A tool provides the present time. A library of dates was not chosen, because it would be the largest dependency of this crate.

use std::ops::Range;

use crate::facts::{Fact, FactKind, is_listed, number_in_words};
use crate::matching::Tool;
use crate::planner::Planner;
use crate::slots::{SlotKind, TextKind};
use crate::tokens::{Text, TokenKind};

const SECONDS_PER_DAY: i64 = 86_400;

/// The words of a unit and its seconds.
const UNITS: [(&str, i64); 5] = [
    ("second seconds sec secs", 1),
    ("minute minutes min mins", 60),
    ("hour hours", 3_600),
    ("day days", SECONDS_PER_DAY),
    ("week weeks", 7 * SECONDS_PER_DAY),
];

/// Reads "in 10 minutes", "10 minutes from now" and "an hour later". Returns the tokens of the number, the number of all tokens,
/// and the seconds.
pub(crate) fn relative_time(text: &Text, at: usize) -> Option<(Range<usize>, usize, i64)> {
    let is_after = text.word(at) == "in";
    let start = at + usize::from(is_after);
    let (length, count) = match text.token(start).map(|token| &token.kind)? {
        TokenKind::Number(number) => (1, number.as_i64()?),
        TokenKind::Word if matches!(text.word(start), "a" | "an") => (1, 1),
        TokenKind::Word => {
            let (length, count) = number_in_words(text, start)?;
            (length, i64::try_from(count).ok()?)
        }
        _ => return None,
    };
    let number = start..start + length;
    let (_, seconds) = UNITS.iter().find(|(words, _)| is_listed(words, text.word(number.end)))?;
    let after = number.end + 1;
    let end = match (text.word(after), text.word(after + 1)) {
        ("from", "now" | "today") => after + 2,
        ("later", _) => after + 1,
        _ if is_after => after,
        _ => return None,
    };
    Some((number, end - at, count.checked_mul(*seconds)?))
}

impl Tool<'_> {
    /// Returns `true` if the tool needs no arguments and returns the present time.
    fn is_clock(&self) -> bool {
        let text = format!("{} {}", self.name(), self.definition.description().unwrap_or_default());
        let words = crate::thesaurus::split_identifier(&text);
        let has = |list: &str| words.iter().any(|word| is_listed(list, word));
        !self.slots.iter().any(|slot| slot.is_required)
            && has("time date clock")
            && has("current now today present")
    }

    fn takes_time(&self) -> bool {
        let is_time =
            |kind: &SlotKind| matches!(kind, SlotKind::Text(TextKind::Time | TextKind::Date { .. }));
        self.slots.iter().any(|slot| is_time(&slot.kind))
    }
}

impl Planner<'_> {
    /// Replaces relative times by the result of the tool that returns the present time, if there is one.
    pub(crate) fn plan_clock(&mut self, facts: &mut [Fact]) {
        let Some(clock) = self.tools.0.iter().position(Tool::is_clock) else { return };
        if !self.tools.0.iter().any(Tool::takes_time) {
            return;
        }
        for fact in facts {
            if let FactKind::Relative { seconds } = fact.kind {
                let step = self.push_step(clock, fact.span.clone(), Vec::new());
                fact.kind = FactKind::PendingResult(step);
                (fact.step, fact.offset_seconds) = (Some(step), Some(seconds));
            }
        }
    }
}

/// Adds seconds to a time of the form `2026-03-01T23:55:00+01:00`. What follows the seconds stays as it is.
pub(crate) fn shift_time(time: &str, seconds: i64) -> Option<String> {
    let time = time.trim().trim_matches('"');
    let number = |range: Range<usize>| time.get(range)?.parse::<i64>().ok();
    let marks = [(4, "-"), (7, "-"), (13, ":")].iter().all(|(at, mark)| time.get(*at..at + 1) == Some(mark));
    let separator = time.get(10..11).filter(|mark| marks && matches!(*mark, "T" | " "))?;
    let day = days_from_civil(number(0..4)?, number(5..7)?, number(8..10)?);
    let has_seconds = time.get(16..17) == Some(":");
    let second = if has_seconds { number(17..19)? } else { 0 };
    let total = day * SECONDS_PER_DAY + number(11..13)? * 3_600 + number(14..16)? * 60 + second;
    let total = total.checked_add(seconds)?;
    let (year, month, day) = civil_from_days(total.div_euclid(SECONDS_PER_DAY));
    let rest = total.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let tail = time.get(if has_seconds { 19 } else { 16 }..)?;
    let seconds = if has_seconds || second != 0 { format!(":{second:02}") } else { String::new() };
    Some(format!("{year:04}-{month:02}-{day:02}{separator}{hour:02}:{minute:02}{seconds}{tail}"))
}

/// Returns the days since the 1st of March of year 0: <https://howardhinnant.github.io/date_algorithms.html>.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
}

/// Returns the year, the month and the day of a number of days since the 1st of March of year 0.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_times_over_days_months_and_leap_years() {
        let table = [
            ("2026-03-01T10:00:00Z", 600, Some("2026-03-01T10:10:00Z")),
            (
                "2026-12-31T23:55:00+01:00[Europe/Berlin]",
                600,
                Some("2027-01-01T00:05:00+01:00[Europe/Berlin]"),
            ),
            ("2024-02-28T23:59:30.5Z", 30, Some("2024-02-29T00:00:00.5Z")),
            ("2023-02-28 23:00", 3_600, Some("2023-03-01 00:00")),
            ("\"2026-03-01T10:00\"", 1, Some("2026-03-01T10:00:01")),
            ("2026-03-01T00:00:00Z", -1, Some("2026-02-28T23:59:59Z")),
            ("10:00", 600, None),
            ("Sunday, the first of March", 600, None),
        ];
        for (time, seconds, expected) in table {
            assert_eq!(shift_time(time, seconds).as_deref(), expected, "{time}");
        }
    }
}
