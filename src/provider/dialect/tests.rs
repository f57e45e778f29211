use super::*;
use crate::provider::Blobs;
use crate::provider::ToolResult;
use crate::provider::profile::ImagePlace;
use base::ids::Hash;

struct One(Vec<u8>);

impl Blobs for One {
    fn bytes(&self, _: &Hash) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}

/// The pictures of a request that shows one of 96 x 64 pixels, each with the role of its message and its size.
fn shown(max_edge: u32, place: ImagePlace) -> Vec<(String, (u32, u32))> {
    let mut bytes = Vec::new();
    let picture = image::RgbImage::from_fn(96, 64, |x, y| image::Rgb([x as u8, y as u8, 9]));
    picture.write_with_encoder(JpegEncoder::new(&mut bytes)).unwrap();
    let sha256 = Hash::of(&bytes);
    let image = ImageRef {
        sha256,
        media_type: "image/jpeg".into(),
        width: 96,
        height: 64,
        bytes: bytes.len() as u64,
        caption: "The picture.".into(),
    };
    let result = ToolResult {
        call_id: "c".into(),
        name: "render_preview".into(),
        text: "{}".into(),
        images: vec![image],
        is_error: false,
        figures: Map::new(),
    };
    let config = WireConfig {
        dialect: Dialect::ChatCompletions,
        origin: "p".into(),
        vision: true,
        wire: Wire::default(),
        image: ImageRules { max_edge, place, ..ImageRules::default() },
        model_body: Map::new(),
    };
    let request = ModelRequest {
        model: "m",
        system: "s",
        tools: &[],
        messages: &[Message::Results { results: vec![result] }],
        earlier: 0,
        max_output_tokens: 9,
        session: "s",
        seed: None,
        blobs: &One(bytes),
        time_left: None,
        on_progress: &|_, _| {},
    };
    let body: Value = serde_json::from_slice(&request_body(&config, &request).unwrap()).unwrap();
    assert_eq!(request_body(&config, &request).unwrap(), request_body(&config, &request).unwrap());
    let mut found = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        for part in message["content"].as_array().into_iter().flatten() {
            let Some(url) = part["image_url"]["url"].as_str() else { continue };
            let bytes = STANDARD.decode(url.split_once(',').unwrap().1).unwrap();
            let size = image::load_from_memory(&bytes).unwrap().into_rgb8().dimensions();
            found.push((message["role"].as_str().unwrap().to_owned(), size));
        }
    }
    found
}

#[test]
fn k3_a_picture_is_sent_as_large_as_the_profile_says_and_where_it_says() {
    let user = |size| vec![("user".to_owned(), size)];
    assert_eq!(shown(96, ImagePlace::NextUserMessage), user((96, 64)));
    assert_eq!(shown(48, ImagePlace::NextUserMessage), user((48, 32)));
    assert_eq!(shown(48, ImagePlace::ToolMessage), [("tool".to_owned(), (48, 32))]);
}
