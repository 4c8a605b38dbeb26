//! Times in a serialised run: whole microseconds. Format 1 used serde's own form, which can still be read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyDuration {
    Micros(u64),
    Whole(Duration),
}

impl From<AnyDuration> for Duration {
    fn from(any: AnyDuration) -> Self {
        match any {
            AnyDuration::Micros(micros) => Self::from_micros(micros),
            AnyDuration::Whole(whole) => whole,
        }
    }
}

fn in_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) mod micros {
    use super::{AnyDuration, Deserialize, Deserializer, Duration, Serialize, Serializer, in_micros};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        in_micros(*duration).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        AnyDuration::deserialize(deserializer).map(Duration::from)
    }
}

pub(crate) mod micros_if_any {
    use super::{AnyDuration, Deserialize, Deserializer, Duration, Serialize, Serializer, in_micros};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(in_micros).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<AnyDuration>::deserialize(deserializer)?.map(Duration::from))
    }
}

pub(crate) mod micros_since_epoch {
    use super::{
        Deserialize, Deserializer, Duration, Serialize, Serializer, SystemTime, UNIX_EPOCH, in_micros,
    };

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AnyTime {
        Micros(u64),
        Whole(SystemTime),
    }

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let since = time.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
        since.map(in_micros).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<AnyTime>::deserialize(deserializer)?.and_then(|any| match any {
            AnyTime::Micros(micros) => UNIX_EPOCH.checked_add(Duration::from_micros(micros)),
            AnyTime::Whole(whole) => Some(whole),
        }))
    }
}
