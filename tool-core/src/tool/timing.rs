//! Times in a stored run, written as whole microseconds. State format 1 used serde's own form, which can still be read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyDuration {
    Micros(u64),
    Serde(Duration),
}

impl From<AnyDuration> for Duration {
    fn from(any: AnyDuration) -> Self {
        match any {
            AnyDuration::Micros(micros) => Self::from_micros(micros),
            AnyDuration::Serde(duration) => duration,
        }
    }
}

fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) mod micros {
    use super::{AnyDuration, Deserialize, Deserializer, Duration, Serialize, Serializer, to_micros};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        to_micros(*duration).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        AnyDuration::deserialize(deserializer).map(Duration::from)
    }
}

pub(crate) mod optional_micros {
    use super::{AnyDuration, Deserialize, Deserializer, Duration, Serialize, Serializer, to_micros};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(to_micros).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<AnyDuration>::deserialize(deserializer)?.map(Duration::from))
    }
}

pub(crate) mod micros_since_epoch {
    use super::{
        Deserialize, Deserializer, Duration, Serialize, Serializer, SystemTime, UNIX_EPOCH, to_micros,
    };

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AnyTime {
        Micros(u64),
        Serde(SystemTime),
    }

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let elapsed = time.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
        elapsed.map(to_micros).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<AnyTime>::deserialize(deserializer)?.and_then(|any| match any {
            AnyTime::Micros(micros) => UNIX_EPOCH.checked_add(Duration::from_micros(micros)),
            AnyTime::Serde(time) => Some(time),
        }))
    }
}
