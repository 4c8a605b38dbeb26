//! Messages of users to a run, and how much of them it takes.
//!
//! What a run waits for bounds the decisions about it, and nothing bounds the messages: they are stored before the run reads them. So
//! [`MessageVolume`] is asked wherever one arrives, by the run itself, by stores and by other worlds.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::content::{Content, Part};

/// A message of a user to a run that works or waits, and who sent it.
///
/// ```
/// use tool_core::run::UserMessage;
///
/// let message = UserMessage::new("By train, please").by("ada");
/// assert_eq!(message.by.as_deref(), Some("ada"));
/// assert_eq!(UserMessage::from("By train, please").by, None);
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Saved", into = "Saved")]
#[non_exhaustive]
pub struct UserMessage {
    /// The message.
    pub content: Content,
    /// Who sent it, if it is known.
    pub by: Option<String>,
}

/// A message without a sender is stored as its content.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Saved {
    Content(Content),
    Message { content: Content, by: String },
}

impl UserMessage {
    /// The largest [size](Self::bytes) of a message to a run: 256 KiB.
    pub const MAX_BYTES: usize = 256 << 10;

    /// Creates a message of an unknown sender.
    #[must_use]
    pub fn new(content: impl Into<Content>) -> Self {
        Self { content: content.into(), by: None }
    }

    /// Sets who sent the message, such as the name of the user who is logged in.
    #[must_use]
    pub fn by(self, by: impl Into<String>) -> Self {
        Self { by: Some(by.into()), ..self }
    }

    /// Returns the size of the message: the bytes of a text, and of anything else those of its JSON, with images and files.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self.content.parts() {
            [Part::Text { text }] => text.len(),
            _ => json_bytes(&self.content),
        }
    }
}

impl<T: Into<Content>> From<T> for UserMessage {
    fn from(content: T) -> Self {
        Self::new(content)
    }
}

impl From<Saved> for UserMessage {
    fn from(saved: Saved) -> Self {
        match saved {
            Saved::Content(content) => Self::new(content),
            Saved::Message { content, by } => Self::new(content).by(by),
        }
    }
}

impl From<UserMessage> for Saved {
    fn from(UserMessage { content, by }: UserMessage) -> Self {
        match by {
            Some(by) => Self::Message { content, by },
            None => Self::Content(content),
        }
    }
}

/// Shows only the size, because conversations are private.
impl fmt::Debug for UserMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserMessage").field("content", &self.content).field("by", &self.by).finish()
    }
}

/// Returns the length of the JSON of a value, which is not kept.
fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // Contents can always be serialized.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

/// How much users have sent to a run in messages. The question is not part of it.
///
/// A store of runs adds the messages in the inbox to the [volume](crate::memory::RunSummary::message_volume) of the stored run, and asks whether
/// the run [takes](Self::takes) one more:
///
/// ```
/// use tool_core::run::UserMessage;
/// use tool_core::store::MessageVolume;
///
/// let volume = MessageVolume::default().with_unread(99, 2_000);
/// assert!(volume.takes(&"By train, please".into()));
/// assert!(!volume.takes(&"x".repeat(UserMessage::MAX_BYTES + 1).into()));
/// assert!(!volume.with_unread(1, 16).takes(&"In the morning".into()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MessageVolume {
    /// The number of messages that are not part of the conversation yet: they are in the inbox, or wait for the results of calls.
    #[serde(skip_serializing_if = "is_zero")]
    pub unread: usize,
    /// The bytes of these messages.
    #[serde(skip_serializing_if = "is_zero")]
    pub unread_bytes: usize,
    /// The bytes of all messages of the run, read or not.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl MessageVolume {
    /// The largest number of messages that a run has not read: 100.
    pub const MAX_UNREAD: usize = 100;

    /// The largest size of the messages that a run has not read: 4 MiB.
    pub const MAX_UNREAD_BYTES: usize = 4 << 20;

    /// The largest size of all messages to a run: 16 MiB.
    pub const MAX_BYTES: usize = 16 << 20;

    /// Adds messages that the run has not read, of so many bytes together.
    #[must_use]
    pub fn with_unread(self, messages: usize, bytes: usize) -> Self {
        Self {
            unread: self.unread.saturating_add(messages),
            unread_bytes: self.unread_bytes.saturating_add(bytes),
            bytes: self.bytes.saturating_add(bytes),
        }
    }

    /// Returns `true` if a run with this volume takes a further message.
    #[must_use]
    pub fn takes(self, message: &UserMessage) -> bool {
        let bytes = message.bytes();
        let with_it = self.with_unread(1, bytes);
        bytes <= UserMessage::MAX_BYTES
            && with_it.unread <= Self::MAX_UNREAD
            && with_it.unread_bytes <= Self::MAX_UNREAD_BYTES
            && with_it.bytes <= Self::MAX_BYTES
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::Image;

    #[test]
    fn takes_messages_up_to_each_bound() {
        let max = UserMessage::MAX_BYTES;
        let load = |unread, unread_bytes, bytes| MessageVolume { unread, unread_bytes, bytes };
        for (load, bytes, takes) in [
            (load(0, 0, 0), max, true),
            (load(0, 0, 0), max + 1, false),
            (load(99, 0, 0), 0, true),
            (load(100, 0, 0), 0, false),
            (load(15, 15 * max, 15 * max), max, true),
            (load(16, 16 * max, 16 * max), 1, false),
            (load(16, 16 * max, 16 * max), 0, true),
            (load(0, 0, 63 * max), max, true),
            (load(0, 0, 64 * max), 1, false),
            (load(usize::MAX, usize::MAX, usize::MAX), 1, false),
        ] {
            assert_eq!(load.takes(&"x".repeat(bytes).into()), takes, "{load:?} and {bytes} bytes");
        }
    }

    #[test]
    fn counts_what_is_no_text_by_its_json() {
        let image = Content::from("Look").with_part(Image::from_bytes("image/png", vec![0; 3_000]));
        let parts: Content = std::iter::repeat_n(Part::from(""), 1_000).collect();
        for content in [image, parts] {
            let json = serde_json::to_string(&content).unwrap();
            assert_eq!(UserMessage::new(content).bytes(), json.len());
        }
        assert_eq!(UserMessage::new("\n\u{1}").bytes(), 2);
    }

    #[test]
    fn a_message_without_a_sender_is_stored_as_its_content() {
        let content = Content::from("Look").with_part("here");
        for (message, expected) in [
            (UserMessage::new("Go"), json!("Go")),
            (UserMessage::new("Go").by("ada"), json!({"content": "Go", "by": "ada"})),
            (UserMessage::new(content.clone()), serde_json::to_value(&content).unwrap()),
        ] {
            let json = serde_json::to_value(&message).unwrap();
            assert_eq!(json, expected);
            assert_eq!(serde_json::from_value::<UserMessage>(json).unwrap(), message);
        }
        let debug = format!("{:?}", UserMessage::new("secret").by("ada"));
        assert_eq!(debug, r#"UserMessage { content: Content(6 bytes), by: Some("ada") }"#);
    }
}
