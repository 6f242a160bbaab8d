//! What a conversation carries beside text, counted in one pass without building a tree of it.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Kinds of content parts and the modality that a chat template sees of them.
const MODALITIES: [(&str, &str); 10] = [
    ("image_url", "image"),
    ("input_image", "image"),
    ("image", "image"),
    ("image_pil", "image"),
    ("image_embeds", "image"),
    ("audio_url", "audio"),
    ("input_audio", "audio"),
    ("audio_embeds", "audio"),
    ("video_url", "video"),
    ("video", "video"),
];
/// A content part that stands for tokens we can't know.
const EMBEDS: &str = "prompt_embeds";

/// The modality of a part of that `type`; `None` for text.
pub(super) fn modality(part_type: &str) -> Option<&'static str> {
    MODALITIES.iter().find(|(kind, _)| *kind == part_type).map(|(_, modality)| *modality)
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Media {
    /// Images, audio clips and videos.
    pub(super) items: usize,
    /// Whether a part carries prompt embeddings.
    pub(super) embeds: bool,
}

impl Media {
    fn add(&mut self, other: Self) {
        self.items += other.items;
        self.embeds |= other.embeds;
    }

    fn of_part(part_type: &str) -> Self {
        Self { items: usize::from(modality(part_type).is_some()), embeds: part_type == EMBEDS }
    }
}

/// Messages, a message, its content and a content part are all read by the same rule: arrays are summed up,
/// of an object its `type` counts, and what it nests under `content` or `output`.
impl<'de> Deserialize<'de> for Media {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MediaVisitor)
    }
}

struct MediaVisitor;

impl<'de> Visitor<'de> for MediaVisitor {
    type Value = Media;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Media, A::Error> {
        let mut media = Media::default();
        while let Some(inner) = seq.next_element::<Media>()? {
            media.add(inner);
        }
        Ok(media)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Media, A::Error> {
        let mut media = Media::default();
        let mut typed = false;
        let mut untyped = Media::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => {
                    let raw = map.next_value::<&RawValue>()?;
                    let kind: Option<String> = serde_json::from_str(raw.get()).ok();
                    typed |= kind.is_some();
                    media.add(kind.as_deref().map(Media::of_part).unwrap_or_default());
                }
                "content" | "output" => media.add(map.next_value()?),
                // A part may leave its type out where a key says it.
                key => {
                    untyped.add(Media::of_part(key));
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !typed {
            media.add(untyped);
        }
        Ok(media)
    }

    fn visit_str<E>(self, _: &str) -> Result<Media, E> {
        Ok(Media::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Media, E> {
        Ok(Media::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Media, E> {
        Ok(Media::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Media, E> {
        Ok(Media::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Media, E> {
        Ok(Media::default())
    }

    fn visit_unit<E>(self) -> Result<Media, E> {
        Ok(Media::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_is_counted_wherever_content_nests() {
        let table = [
            (r#"[{"role":"user","content":"image_url"}]"#, 0, false),
            (
                r#"[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}]"#,
                1,
                false,
            ),
            (r#"[{"content":[{"image_url":"x"},{"type":"input_audio"},3,null,true]}]"#, 2, false),
            (r#"[{"content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]}]"#, 1, false),
            (r#"[{"type":"function_call_output","output":[{"type":"input_image"}]}]"#, 1, false),
            (r#"[{"content":[{"type":"prompt_embeds","data":"x"}]}]"#, 0, true),
            (r#"[{"type":"\u0069mage","x":1e9}]"#, 1, false),
            ("[1.5,-2]", 0, false),
        ];
        for (json, items, embeds) in table {
            assert_eq!(serde_json::from_str::<Media>(json).unwrap(), Media { items, embeds }, "{json}");
        }
    }
}
