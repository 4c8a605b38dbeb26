//! Finds the current time in a text.

use crate::tool::Timestamp;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const MILLIS_PER_DAY: u64 = 86_400_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// What time zones differ by, and the age of a time that an agent was just built with, in seconds.
const HALF_HOUR: u64 = 1_800;
const MAX_AGE: u64 = 10;

/// Returns the date of today, or of the day before or after in other time zones, or else the time of day of now, to the second, if a text contains
/// one. Other times stand in many instructions, as opening hours and examples do.
pub(super) fn find_time(text: &str, now: Timestamp) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let today = now.as_millis() / MILLIS_PER_DAY;
    let mut dates = (today.saturating_sub(1)..=today + 1).flat_map(written_dates);
    dates.find(|date| contains_number(&text, date)).or_else(|| find_clock(&text, now))
}

/// Returns the usual forms of a date, given as days since 1970.
fn written_dates(day: u64) -> Vec<String> {
    let (mut year, mut day) = (1970, day);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (name, day, month) = (MONTHS[month], day + 1, month + 1);
    let mut dates = vec![
        format!("{year}-{month:02}-{day:02}"),
        format!("{year}/{month:02}/{day:02}"),
        format!("{month:02}/{day:02}/{year}"),
        format!("{day:02}/{month:02}/{year}"),
        format!("{day:02}.{month:02}.{year}"),
        format!("{day}.{month}.{year}"),
    ];
    for name in [name, &name[..3]] {
        dates.extend([format!("{day} {name} {year}"), format!("{day:02} {name} {year}")]);
        dates.extend([format!("{name} {day}, {year}"), format!("{name} {day:02}, {year}")]);
    }
    dates
}

/// Returns `true` if the text contains this, but not as a part of longer numbers.
fn contains_number(text: &str, number: &str) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    text.match_indices(number).any(|(start, found)| {
        let (before, after) = (&text.as_bytes()[..start], &text.as_bytes()[start + found.len()..]);
        !is_digit(before.last()) && !is_digit(after.first())
    })
}

/// Finds the time of now, such as `09:41:07`, in any time zone that differs by half hours. Full minutes are those of examples.
fn find_clock(text: &str, now: Timestamp) -> Option<String> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b':';
    let runs = text.as_bytes().split(|byte| !is_part(byte));
    let is_now = |run: &&[u8]| {
        seconds_of_day(run).is_some_and(|seconds| {
            let age = (now.as_millis() / 1000 + SECONDS_PER_DAY - seconds) % HALF_HOUR;
            seconds % 60 != 0 && age <= MAX_AGE
        })
    };
    runs.into_iter().find(is_now).map(|run| String::from_utf8_lossy(run).into_owned())
}

fn seconds_of_day(clock: &[u8]) -> Option<u64> {
    let clock = std::str::from_utf8(clock.strip_suffix(b":").unwrap_or(clock)).ok()?;
    let parts: Vec<_> = clock.split(':').collect();
    let [hours, minutes, seconds] = parts.try_into().ok()?;
    let number =
        |part: &str, max| part.parse::<u64>().ok().filter(|number| part.len() == 2 && *number <= max);
    Some((number(hours, 23)? * 60 + number(minutes, 59)?) * 60 + number(seconds, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-02-29 23:30 UTC.
    const NOW: Timestamp = Timestamp::from_millis(1_709_249_400_000);

    #[test]
    fn finds_the_time_of_now() {
        let table = [
            ("You help. Today is 2024-02-29.", Some("2024-02-29")),
            ("Now: 2024-03-01T08:30:00+09:00", Some("2024-03-01")),
            ("It is Thursday, February 29, 2024", Some("february 29, 2024")),
            ("Thu, 29 Feb 2024 23:30:00 GMT", Some("29 feb 2024")),
            ("Date: 1 March 2024", Some("1 march 2024")),
            ("Heute ist der 29.02.2024", Some("29.02.2024")),
            ("The clock shows 23:29:51 now", Some("23:29:51")),
            ("Jetzt: 05:00:00, also um 04:59:58.", Some("04:59:58")),
            // Other days, parts of numbers, and times that may be meant to stay.
            ("The rules of 2023-02-28 hold", None),
            ("Order 12024-02-299", None),
            ("21 March 2024", None),
            ("Open from 09:00 to 17:30", None),
            ("For example at 10:00:00, at 23:30:00, or at 09:41:07", None),
            ("The clock showed 23:29:49, and will show 23:30:01", None),
            ("Codes such as 12:34:567 or 99:00:00 or 1:2:3:4", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(find_time(text, NOW).as_deref(), expected, "{text}");
        }
        // An example of full minutes is never found, whenever it is reviewed.
        let half_hour = (0..1_800).map(|second| Timestamp::from_millis(NOW.as_millis() + second * 1_000));
        assert!(half_hour.into_iter().all(|now| find_time("Write times as 14:03:00.", now).is_none()));
        assert_eq!(find_time("1970-01-01", Timestamp::default()).as_deref(), Some("1970-01-01"));
    }
}
