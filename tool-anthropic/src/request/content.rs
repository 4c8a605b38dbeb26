//! The content of messages and results as blocks.

use tool_core::content::{Content, File, Image, Part};
use tool_http::client::Error;
use tool_http::client::json::string;

/// The media types of images that the API accepts: <https://platform.claude.com/docs/en/build-with-claude/vision>.
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// What of a content depends on the endpoint and the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ContentRules {
    pub(super) supports_files: bool,
    /// The model cites the files.
    pub(super) has_citations: bool,
    /// The model reads summaries in the form of the API.
    pub(super) reads_summaries: bool,
}

/// Returns a text block.
pub(super) fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, string(text))
}

/// Returns the blocks of a content, without blank texts, which the API rejects.
pub(super) fn blocks(content: &Content, rules: ContentRules) -> Result<Vec<String>, Error> {
    let is_blank = |part: &&Part| part.as_text().is_some_and(|text| text.trim().is_empty());
    content.parts().iter().filter(|part| !is_blank(part)).map(|part| block(part, rules)).collect()
}

/// Returns the text of a system message, unless it is blank.
pub(super) fn system_block(content: &Content) -> Result<Option<String>, Error> {
    if content.parts().iter().any(|part| part.as_text().is_none()) {
        return Err(Error::request(
            "a system message can only contain text; put the rest into a user message",
        ));
    }
    let text = content.text();
    Ok((!text.trim().is_empty()).then(|| text_block(&text)))
}

fn block(part: &Part, rules: ContentRules) -> Result<String, Error> {
    match (part, part.as_text()) {
        (_, Some(text)) => Ok(text_block(text)),
        (Part::Image(image), _) => image_block(image),
        (Part::File(file), _) => file_block(file, rules),
        (other, None) => Err(Error::request(format!("the API does not support this content: {other:?}"))),
    }
}

fn image_block(image: &Image) -> Result<String, Error> {
    let source = source(image.url(), image.media_type(), image.base64(), &IMAGE_TYPES, "images")?;
    Ok(format!(r#"{{"type":"image","source":{source}}}"#))
}

fn file_block(file: &File, rules: ContentRules) -> Result<String, Error> {
    if !rules.supports_files {
        return Err(Error::request(
            "the endpoint does not accept files; set `Endpoint::supports_files` if it does, or send their text",
        ));
    }
    let source = match (file.id(), file.url(), file.media_type()) {
        (Some(id), ..) => format!(r#"{{"type":"file","file_id":{}}}"#, string(id)),
        (_, Some(url), Some(media_type)) if IMAGE_TYPES.contains(&media_type) => {
            return image_block(&Image::from_url(url));
        }
        (_, Some(_), Some(media_type))
            if media_type.starts_with("text/") || media_type == "application/json" =>
        {
            let text = file.bytes().and_then(|bytes| String::from_utf8(bytes).ok());
            let text = text.ok_or_else(|| {
                Error::request(format!("a file of type `{media_type}` is not valid base64 of UTF-8 text"))
            })?;
            format!(r#"{{"type":"text","media_type":"text/plain","data":{}}}"#, string(&text))
        }
        (_, Some(url), media_type) => source(url, media_type, file.base64(), &["application/pdf"], "files")?,
        (None, None, _) => return Err(Error::request("the file has neither a URL nor an id")),
    };
    let title = file.name().map(|name| format!(r#","title":{}"#, string(name))).unwrap_or_default();
    let citations = if rules.has_citations { r#","citations":{"enabled":true}"# } else { "" };
    Ok(format!(r#"{{"type":"document","source":{source}{title}{citations}}}"#))
}

/// Returns the source of data of one of these media types, or of a URL that the provider fetches.
fn source(
    url: &str,
    media_type: Option<&str>,
    base64: Option<&str>,
    accepted: &[&str],
    noun: &str,
) -> Result<String, Error> {
    if url.starts_with("https://") || url.starts_with("http://") {
        return Ok(format!(r#"{{"type":"url","url":{}}}"#, string(url)));
    }
    let accepted_types = accepted.join("`, `");
    let Some(base64) = base64 else {
        let way_out = format!("use an `https` URL, or the bytes with one of the types `{accepted_types}`");
        return Err(Error::request(format!("the API does not accept such a URL of {noun}; {way_out}")));
    };
    let media_type = media_type.unwrap_or_default();
    if !accepted.contains(&media_type) {
        return Err(Error::request(format!(
            "the API does not accept {noun} of type `{media_type}`; use `{accepted_types}`"
        )));
    }
    let (media_type, data) = (string(media_type), string(base64));
    Ok(format!(r#"{{"type":"base64","media_type":{media_type},"data":{data}}}"#))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const RULES: ContentRules =
        ContentRules { supports_files: true, has_citations: false, reads_summaries: true };

    fn written(part: impl Into<Part>, rules: ContentRules) -> Result<Value, String> {
        let content = Content::from(part.into());
        let blocks = blocks(&content, rules).map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&format!("[{}]", blocks.join(","))).unwrap())
    }

    #[test]
    fn writes_files() {
        let cited = ContentRules { has_citations: true, ..RULES };
        let table = [
            (
                File::from_bytes("application/pdf", "%PDF").with_name("a.pdf"),
                RULES,
                json!([{ "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERg==" }, "title": "a.pdf" }]),
            ),
            (
                File::from_bytes("text/markdown", "# é"),
                cited,
                json!([{ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "# é" }, "citations": { "enabled": true } }]),
            ),
            (
                File::from_url("https://example.org/a.pdf"),
                RULES,
                json!([{ "type": "document", "source": { "type": "url", "url": "https://example.org/a.pdf" } }]),
            ),
            (
                File::from_id("file_1"),
                RULES,
                json!([{ "type": "document", "source": { "type": "file", "file_id": "file_1" } }]),
            ),
            (
                File::from_bytes("image/gif", "GIF89a"),
                RULES,
                json!([{ "type": "image", "source": { "type": "base64", "media_type": "image/gif", "data": "R0lGODlh" } }]),
            ),
        ];
        for (file, rules, expected) in table {
            assert_eq!(written(file, rules), Ok(expected));
        }
    }

    #[test]
    fn rejects_what_the_api_rejects() {
        let images = "`image/jpeg`, `image/png`, `image/gif`, `image/webp`";
        let table: [(Part, String); 5] = [
            (
                Image::from_bytes("image/svg+xml", "<svg/>").into(),
                format!("the API does not accept images of type `image/svg+xml`; use {images}"),
            ),
            (
                Image::from_url("data:image/png,x").into(),
                format!(
                    "the API does not accept such a URL of images; use an `https` URL, or the bytes with one of the types {images}"
                ),
            ),
            (
                Image::from_url("file:///etc/passwd").into(),
                format!(
                    "the API does not accept such a URL of images; use an `https` URL, or the bytes with one of the types {images}"
                ),
            ),
            (
                File::from_bytes("application/zip", "PK").into(),
                "the API does not accept files of type `application/zip`; use `application/pdf`".into(),
            ),
            (
                File::from_bytes("text/plain", [0xff]).into(),
                "a file of type `text/plain` is not valid base64 of UTF-8 text".into(),
            ),
        ];
        for (part, expected) in table {
            assert_eq!(written(part, RULES), Err(expected));
        }
        let error = written(File::from_id("f"), ContentRules { supports_files: false, ..RULES });
        assert_eq!(
            error.unwrap_err(),
            "the endpoint does not accept files; set `Endpoint::supports_files` if it does, or send their text"
        );
    }

    #[test]
    fn blank_texts_are_left_out() {
        let content = Content::from_iter(["".into(), " \n".into(), "a ".into()]);
        assert_eq!(blocks(&content, RULES).unwrap(), [r#"{"type":"text","text":"a "}"#]);
        assert_eq!(system_block(&Content::from("  ")).unwrap(), None);
        let error = system_block(&Content::from(Part::from(Image::from_url("https://a/b.png")))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a system message can only contain text; put the rest into a user message"
        );
    }
}
