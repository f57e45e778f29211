//! A small XML tree, read within bounds: what a sidecar needs of XML, and nothing that can be turned against
//! the reader (no document type, so no entities of one's own; limited size, depth and number of attributes).

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

use super::XmpError;

/// Bytes of a sidecar.
pub const MAX_BYTES: usize = 4 << 20;
/// Elements within elements.
pub const MAX_DEPTH: usize = 64;
/// Attributes of the whole document.
pub const MAX_ATTRIBUTES: usize = 4000;
/// Elements of the whole document.
pub const MAX_ELEMENTS: usize = 20_000;

/// The namespaces that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// `http://darktable.sf.net/`.
    Darktable,
    /// RDF.
    Rdf,
    /// Any other, or none.
    Other,
}

/// An element.
#[derive(Debug)]
pub struct Node {
    pub space: Space,
    pub name: String,
    pub attributes: Vec<(Space, String, String)>,
    pub text: String,
    pub children: Vec<Node>,
}

impl Node {
    /// The child elements of this name.
    pub fn all<'a>(&'a self, space: Space, name: &'a str) -> impl Iterator<Item = &'a Node> {
        self.children.iter().filter(move |c| c.space == space && c.name == name)
    }

    /// Calls `visit` with each simple darktable property of this element: attributes, child elements that
    /// hold text only, and both of a `rdf:Description` inside, which are three spellings of the same.
    pub fn properties<'a>(&'a self, visit: &mut impl FnMut(&'a str, &'a str)) {
        for (space, name, value) in &self.attributes {
            if *space == Space::Darktable {
                visit(name, value);
            }
        }
        for child in &self.children {
            match child.space {
                Space::Darktable if child.children.is_empty() => visit(&child.name, child.text.trim()),
                Space::Rdf if child.name == "Description" => child.properties(visit),
                _ => {}
            }
        }
    }
}

fn space_of(resolved: &ResolveResult<'_>) -> Space {
    match resolved {
        ResolveResult::Bound(namespace) if namespace.as_ref() == "http://darktable.sf.net/" => {
            Space::Darktable
        }
        ResolveResult::Bound(namespace)
            if namespace.as_ref() == "http://www.w3.org/1999/02/22-rdf-syntax-ns#" =>
        {
            Space::Rdf
        }
        _ => Space::Other,
    }
}

fn syntax(error: impl std::fmt::Display) -> XmpError {
    XmpError::Syntax(error.to_string())
}

/// Reads a document; the answer is a node above its root element.
pub fn parse(bytes: &[u8]) -> Result<Node, XmpError> {
    if bytes.len() > MAX_BYTES {
        return Err(XmpError::TooMuch { what: "bytes", limit: MAX_BYTES });
    }
    let text = std::str::from_utf8(bytes).map_err(syntax)?;
    let mut reader = NsReader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let top = Node {
        space: Space::Other,
        name: String::new(),
        attributes: Vec::new(),
        text: String::new(),
        children: Vec::new(),
    };
    let mut open = vec![top];
    let (mut attributes, mut elements) = (0_usize, 0_usize);
    loop {
        let event = reader.read_event().map_err(syntax)?;
        match event {
            Event::Start(ref start) | Event::Empty(ref start) => {
                elements += 1;
                if elements > MAX_ELEMENTS {
                    return Err(XmpError::TooMuch { what: "elements", limit: MAX_ELEMENTS });
                }
                if open.len() > MAX_DEPTH {
                    return Err(XmpError::TooMuch { what: "levels", limit: MAX_DEPTH });
                }
                let node = element(&reader, start, &mut attributes)?;
                if matches!(event, Event::Start(_)) {
                    open.push(node);
                } else if let Some(parent) = open.last_mut() {
                    parent.children.push(node);
                }
            }
            Event::End(_) => {
                if let Some(node) = open.pop()
                    && let Some(parent) = open.last_mut()
                {
                    parent.children.push(node);
                }
            }
            Event::Text(part) => append(&mut open, &part.xml10_content()),
            Event::CData(part) => append(&mut open, &part.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().map_err(syntax)? {
                Some(char) => append(&mut open, char.encode_utf8(&mut [0; 4])),
                None => {
                    let name = reference.xml10_content();
                    let value = resolve_predefined_entity(&name)
                        .ok_or_else(|| XmpError::Syntax(format!("unknown entity `{name}`")))?;
                    append(&mut open, value);
                }
            },
            Event::DocType(_) => return Err(XmpError::DocumentType),
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    match open.pop() {
        Some(top) if open.is_empty() => Ok(top),
        _ => Err(XmpError::Syntax("the document ends inside an element".into())),
    }
}

fn append(open: &mut [Node], text: &str) {
    if let Some(node) = open.last_mut() {
        node.text.push_str(text);
    }
}

fn element(reader: &NsReader<&[u8]>, start: &BytesStart<'_>, count: &mut usize) -> Result<Node, XmpError> {
    let (resolved, local) = reader.resolver().resolve_element(start.name());
    let mut node = Node {
        space: space_of(&resolved),
        name: local.as_ref().to_owned(),
        attributes: Vec::new(),
        text: String::new(),
        children: Vec::new(),
    };
    for attribute in start.attributes() {
        *count += 1;
        if *count > MAX_ATTRIBUTES {
            return Err(XmpError::TooMuch { what: "attributes", limit: MAX_ATTRIBUTES });
        }
        let attribute = attribute.map_err(syntax)?;
        let (resolved, local) = reader.resolver().resolve_attribute(attribute.key);
        // Normalising goes character by character, and nearly all values are long and plain.
        let plain = !attribute.value.bytes().any(|b| matches!(b, b'&' | b'\t' | b'\n' | b'\r'));
        let value = match plain {
            true => attribute.value.into_owned(),
            false => attribute.normalized_value(XmlVersion::Implicit1_0).map_err(syntax)?.into_owned(),
        };
        node.attributes.push((space_of(&resolved), local.as_ref().to_owned(), value));
    }
    Ok(node)
}
