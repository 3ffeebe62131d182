//! The features of a `tf.train.Example`: the records of TFRecord files, in the wire format of Protocol Buffers.
//!
//! ```text
//! Example     1: Features
//! Features    1: entry { 1: name, 2: Feature }      repeated; of entries with one name, the last counts
//! Feature     1: BytesList | 2: FloatList | 3: Int64List
//! each list   1: values, packed or one by one
//! ```
//!
//! Unknown fields are skipped. Messages that occur twice are merged, as Protocol Buffers specify. Every length is compared
//! with the bytes that are there, so that a record takes time and memory in proportion to its size.

use std::collections::HashMap;
use std::ops::Range;

/// The values of a feature.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Values {
    /// No list at all.
    #[default]
    None,
    /// Where the values lie in the record.
    Bytes(Vec<Range<usize>>),
    /// Single precision.
    Floats(Vec<f32>),
    /// 64 bits, with sign.
    Ints(Vec<i64>),
}

/// A feature of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its values.
    pub values: Values,
}

/// Why bytes are no record: what is wrong, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong.
    pub reason: &'static str,
    /// The offset in the record.
    pub offset: usize,
}

/// Groups inside groups that are skipped.
const MAX_DEPTH: usize = 100;

/// The features of a record, in the order in which their names occur first.
///
/// # Errors
/// The bytes are not a message of Protocol Buffers, or a name is not UTF-8.
pub fn features(record: &[u8]) -> Result<Vec<Feature<'_>>, Malformed> {
    let mut features: Vec<Feature<'_>> = Vec::new();
    let mut places = HashMap::new();
    let mut example = Message::new(record, 0..record.len());
    while let Some(field) = example.next()? {
        let (1, Content::Bytes(range)) = field else { continue };
        let mut entries = Message::new(record, range);
        while let Some(field) = entries.next()? {
            let (1, Content::Bytes(range)) = field else { continue };
            let feature = entry(record, range)?;
            let known = if features.len() <= SEARCHED {
                features.iter().position(|known| known.name == feature.name)
            } else {
                if places.is_empty() {
                    places.extend(features.iter().enumerate().map(|(place, known)| (known.name, place)));
                }
                places.get(feature.name).copied()
            };
            match known {
                Some(place) => features[place] = feature,
                None => {
                    if !places.is_empty() {
                        places.insert(feature.name, features.len());
                    }
                    features.push(feature);
                }
            }
        }
    }
    Ok(features)
}

/// Features of a record that are searched one by one, which is faster than a table.
const SEARCHED: usize = 16;

fn entry(record: &[u8], range: Range<usize>) -> Result<Feature<'_>, Malformed> {
    let mut name = "";
    let mut values = Values::None;
    let mut message = Message::new(record, range);
    while let Some(field) = message.next()? {
        match field {
            (1, Content::Bytes(range)) => {
                let offset = range.start;
                name = str::from_utf8(&record[range]).map_err(|_| Malformed {
                    reason: "the name of a feature is not UTF-8",
                    offset,
                })?;
            }
            (2, Content::Bytes(range)) => feature(record, range, &mut values)?,
            _ => {}
        }
    }
    Ok(Feature { name, values })
}

/// Merges a feature into `values`: a list of the same kind is extended, another kind replaces it.
fn feature(record: &[u8], range: Range<usize>, values: &mut Values) -> Result<(), Malformed> {
    let mut message = Message::new(record, range);
    while let Some(field) = message.next()? {
        let (number @ 1..=3, Content::Bytes(range)) = field else {
            continue;
        };
        match (number, &mut *values) {
            (1, Values::Bytes(_)) | (2, Values::Floats(_)) | (3, Values::Ints(_)) => {}
            (1, _) => *values = Values::Bytes(Vec::new()),
            (2, _) => *values = Values::Floats(Vec::new()),
            _ => *values = Values::Ints(Vec::new()),
        }
        let mut list = Message::new(record, range);
        while let Some(field) = list.next()? {
            let (1, content) = field else { continue };
            append(record, content, values)?;
        }
    }
    Ok(())
}

/// Appends a value, or packed values; content of another type is an unknown field.
fn append(record: &[u8], content: Content, values: &mut Values) -> Result<(), Malformed> {
    match (values, content) {
        (Values::Bytes(list), Content::Bytes(range)) => list.push(range),
        (Values::Floats(list), Content::Fixed32(bits)) => list.push(f32::from_bits(bits)),
        (Values::Floats(list), Content::Bytes(range)) => {
            let offset = range.start;
            let (packed, rest) = record[range].as_chunks::<4>();
            if !rest.is_empty() {
                let reason = "packed floats are not a multiple of 4 bytes";
                return Err(Malformed { reason, offset });
            }
            list.extend(packed.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        }
        (Values::Ints(list), Content::Varint(value)) => list.push(value as i64),
        (Values::Ints(list), Content::Bytes(range)) => {
            let mut packed = Message::new(record, range);
            while packed.at < packed.end {
                list.push(packed.varint()? as i64);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The content of a field.
enum Content {
    Varint(u64),
    Fixed64,
    Bytes(Range<usize>),
    Fixed32(u32),
    Group,
}

/// The fields of a message that are left, in a record.
struct Message<'a> {
    record: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Message<'a> {
    fn new(record: &'a [u8], range: Range<usize>) -> Self {
        Self {
            record,
            at: range.start,
            end: range.end,
        }
    }

    /// Number and content of the next field; of a group only that it was skipped.
    fn next(&mut self) -> Result<Option<(u32, Content)>, Malformed> {
        if self.at == self.end {
            return Ok(None);
        }
        let (number, kind) = self.tag()?;
        if kind == 3 {
            self.skip_group(number)?;
            return Ok(Some((number, Content::Group)));
        }
        Ok(Some((number, self.content(kind)?)))
    }

    fn tag(&mut self) -> Result<(u32, u64), Malformed> {
        let tag = self.varint()?;
        match u32::try_from(tag) {
            Ok(tag) if tag >> 3 != 0 => Ok((tag >> 3, u64::from(tag & 7))),
            _ => Err(self.malformed("the number of a field is not valid")),
        }
    }

    fn content(&mut self, kind: u64) -> Result<Content, Malformed> {
        Ok(match kind {
            0 => Content::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Content::Fixed64
            }
            2 => {
                let nbytes = self.varint()?;
                let nbytes = usize::try_from(nbytes).map_err(|_| self.malformed("a field ends behind its message"))?;
                Content::Bytes(self.take(nbytes)?)
            }
            5 => {
                let range = self.take(4)?;
                let bytes = self.record[range].first_chunk().copied().unwrap_or_default();
                Content::Fixed32(u32::from_le_bytes(bytes))
            }
            _ => return Err(self.malformed("the type of a field is not valid")),
        })
    }

    /// Skips to the end of a group whose start was read.
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            match self.tag()? {
                (inner, 3) if open.len() < MAX_DEPTH => open.push(inner),
                (ended, 4) if ended == innermost => {
                    open.pop();
                }
                (_, 3 | 4) => return Err(self.malformed("a group does not end, or is nested too deeply")),
                (_, kind) => {
                    self.content(kind)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, nbytes: usize) -> Result<Range<usize>, Malformed> {
        if nbytes > self.end - self.at {
            return Err(self.malformed("a field ends behind its message"));
        }
        let begin = self.at;
        self.at += nbytes;
        Ok(begin..self.at)
    }

    /// A number of 64 bits in groups of seven, the lowest first.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (i, &byte) in self.record[self.at..self.end].iter().take(10).enumerate() {
            value |= u64::from(byte & 127) << (7 * i);
            if byte < 128 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(self.malformed("a number does not end"))
    }

    fn malformed(&self, reason: &'static str) -> Malformed {
        Malformed {
            reason,
            offset: self.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, content.len() as u8];
        field.extend_from_slice(content);
        field
    }

    fn record(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let entries = entries
            .iter()
            .flat_map(|(name, feature)| bytes(1, &[bytes(1, name.as_bytes()), bytes(2, feature)].concat()));
        bytes(1, &entries.collect::<Vec<_>>())
    }

    #[test]
    fn lists_are_read_packed_and_one_by_one() {
        let example = record(&[
            ("f", bytes(2, &bytes(1, &[0, 0, 128, 63, 0, 0, 0, 64]))),
            ("g", bytes(2, &[13, 0, 0, 128, 63, 13, 0, 0, 0, 64])),
            ("i", bytes(3, &bytes(1, &[1, 172, 2]))),
            (
                "j",
                bytes(3, &[8, 1, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            ),
            ("n", Vec::new()),
        ]);

        let found = features(&example).unwrap();

        let values: Vec<_> = found.into_iter().map(|f| (f.name, f.values)).collect();
        assert_eq!(
            values,
            [
                ("f", Values::Floats(vec![1.0, 2.0])),
                ("g", Values::Floats(vec![1.0, 2.0])),
                ("i", Values::Ints(vec![1, 300])),
                ("j", Values::Ints(vec![1, -1])),
                ("n", Values::None),
            ]
        );
    }

    #[test]
    fn the_last_entry_of_a_name_counts() {
        let example = record(&[("a", bytes(1, &bytes(1, b"x"))), ("a", bytes(1, &bytes(1, b"yz")))]);

        let found = features(&example).unwrap();

        assert_eq!(found.len(), 1);
        let Values::Bytes(ranges) = &found[0].values else {
            panic!("bytes")
        };
        assert_eq!(&example[ranges[0].clone()], b"yz");
    }

    #[test]
    fn many_features_are_found_by_name() {
        let names: Vec<_> = (0..60).map(|i| format!("n{}", i % 40)).collect();
        let entries = names.iter().enumerate().map(|(i, name)| {
            bytes(
                1,
                &[bytes(1, name.as_bytes()), bytes(2, &bytes(3, &[8, i as u8]))].concat(),
            )
        });
        let example: Vec<_> = entries.flat_map(|entry| bytes(1, &entry)).collect();

        let found = features(&example).unwrap();

        assert_eq!(found.len(), 40);
        assert_eq!(found[19].values, Values::Ints(vec![59]));
        assert_eq!(found[20].values, Values::Ints(vec![20]));
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let mut example = vec![24, 5, 33, 0, 0, 0, 0, 0, 0, 0, 0, 45, 0, 0, 0, 0, 51, 24, 5, 52];
        example.extend(record(&[("a", bytes(3, &[8, 7]))]));

        assert_eq!(features(&example).unwrap()[0].values, Values::Ints(vec![7]));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_ends() {
        let example = record(&[
            ("f", bytes(2, &bytes(1, &[0, 0, 128, 63]))),
            ("b", bytes(1, &bytes(1, b"some bytes"))),
            ("i", bytes(3, &bytes(1, &[1, 172, 2]))),
        ]);
        for end in 0..example.len() {
            let _ = features(&example[..end]);
        }
        for bit in 0..example.len() * 8 {
            let mut damaged = example.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = features(&damaged);
        }
        assert!(features(&[255; 40]).is_err());
        assert!(features(&[7]).is_err());
        assert!(features(&[0, 0]).is_err());
    }
}
