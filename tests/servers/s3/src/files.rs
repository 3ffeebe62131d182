//! Buckets and objects as folders and files. What object stores promise is kept: an object appears whole or not at all,
//! has a tag that changes with it, and has no folders above it.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

/// The folder of unfinished uploads, in that of the buckets.
const UPLOADS: &str = ".uploads";

pub struct Files {
    root: PathBuf,
    uploads: AtomicU64,
}

impl Files {
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            uploads: AtomicU64::new(0),
        }
    }

    fn object(&self, bucket: &str, key: &str) -> S3Result<PathBuf> {
        let folder = self.root.join(bucket);
        if !folder.is_dir() {
            return Err(s3_error!(NoSuchBucket));
        }
        if Path::new(key)
            .components()
            .any(|part| !matches!(part, std::path::Component::Normal(_)))
        {
            return Err(s3_error!(InvalidArgument));
        }
        Ok(folder.join(key))
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<(File, Metadata)> {
        let file = File::open(self.object(bucket, key)?).map_err(|_| s3_error!(NoSuchKey))?;
        let about = file.metadata().map_err(internal)?;
        if !about.is_file() {
            return Err(s3_error!(NoSuchKey));
        }
        Ok((file, about))
    }

    fn part(&self, upload: &str, number: i32) -> PathBuf {
        self.root.join(UPLOADS).join(format!("{upload}.{number:05}"))
    }

    /// Writes an object in one step: under another name first.
    fn write(&self, path: &Path, parts: impl Iterator<Item = io::Result<Bytes>>) -> io::Result<ETag> {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        let partial = self.root.join(UPLOADS).join(format!("write-{number}"));
        for folder in [&partial, path] {
            fs::create_dir_all(folder.parent().expect("it is in a folder"))?;
        }
        let mut file = File::create(&partial)?;
        for part in parts {
            file.write_all(&part?)?;
        }
        fs::rename(partial, path)?;
        Ok(tag(&file.metadata()?))
    }
}

fn internal(error: io::Error) -> s3s::S3Error {
    s3_error!(InternalError, "{error}")
}

fn tag(about: &Metadata) -> ETag {
    ETag::Strong(format!(
        "{:x}-{:x}-{:x}",
        about.ino(),
        about.len(),
        about.mtime() * 1_000_000_000 + about.mtime_nsec()
    ))
}

fn changed(about: &Metadata) -> Option<Timestamp> {
    about.modified().ok().map(Timestamp::from)
}

fn size(about: &Metadata) -> Option<i64> {
    i64::try_from(about.len()).ok()
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let body = s3s::Body::from(body.ok_or_else(|| s3_error!(IncompleteBody))?);
    Ok(body.collect().await.map_err(|_| s3_error!(IncompleteBody))?.to_bytes())
}

fn list(folder: &Path, above: &str, found: &mut Vec<(String, Metadata)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{above}{}", entry.file_name().to_string_lossy());
        match entry.metadata() {
            Ok(about) if about.is_dir() => list(&entry.path(), &format!("{name}/"), found),
            Ok(about) => found.push((name, about)),
            Err(_) => {}
        }
    }
}

#[async_trait::async_trait]
impl S3 for Files {
    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let (_, about) = self.open(&req.input.bucket, &req.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: size(&about),
            e_tag: Some(tag(&about)),
            last_modified: changed(&about),
            ..Default::default()
        }))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let (file, about) = self.open(&req.input.bucket, &req.input.key)?;
        let range = req.input.range.map(|range| range.check(about.len())).transpose()?;
        let wanted = range.clone().unwrap_or(0..about.len());
        let mut content = vec![0; (wanted.end - wanted.start) as usize];
        file.read_exact_at(&mut content, wanted.start).map_err(internal)?;
        Ok(S3Response::new(GetObjectOutput {
            content_length: i64::try_from(content.len()).ok(),
            content_range: range.map(|range| format!("bytes {}-{}/{}", range.start, range.end - 1, about.len())),
            body: Some(StreamingBlob::from(s3s::Body::from(Bytes::from(content)))),
            e_tag: Some(tag(&about)),
            last_modified: changed(&about),
            ..Default::default()
        }))
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = req.input;
        let folder = self.root.join(&input.bucket);
        if !folder.is_dir() {
            return Err(s3_error!(NoSuchBucket));
        }
        let (prefix, delimiter) = (input.prefix.unwrap_or_default(), input.delimiter.unwrap_or_default());
        let after = input.continuation_token.or(input.start_after).unwrap_or_default();
        let most = input.max_keys.unwrap_or(1000).clamp(1, 1000) as usize;
        let mut found = Vec::new();
        list(&folder, "", &mut found);
        found.retain(|(name, _)| name.starts_with(&prefix) && *name > after);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let (mut contents, mut common, mut last): (Vec<Object>, Vec<CommonPrefix>, _) = (Vec::new(), Vec::new(), None);
        let total = found.len();
        for (name, about) in found.into_iter().take(most) {
            last = Some(name.clone());
            let end = (!delimiter.is_empty())
                .then(|| name[prefix.len()..].find(&delimiter))
                .flatten();
            match end.map(|at| name[..prefix.len() + at + delimiter.len()].to_owned()) {
                Some(above) if common.last().and_then(|each| each.prefix.as_ref()) == Some(&above) => {}
                Some(above) => common.push(CommonPrefix { prefix: Some(above) }),
                None => contents.push(Object {
                    key: Some(name),
                    size: size(&about),
                    e_tag: Some(tag(&about)),
                    last_modified: changed(&about),
                    ..Default::default()
                }),
            }
        }
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            key_count: i32::try_from(contents.len() + common.len()).ok(),
            is_truncated: Some(total > most),
            next_continuation_token: if total > most { last } else { None },
            contents: Some(contents),
            common_prefixes: Some(common),
            ..Default::default()
        }))
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let path = self.object(&req.input.bucket, &req.input.key)?;
        let must_be_new = req.input.if_none_match.is_some();
        let content = collect(req.input.body).await?;
        if must_be_new && path.exists() {
            return Err(s3_error!(PreconditionFailed));
        }
        let e_tag = self.write(&path, std::iter::once(Ok(content))).map_err(internal)?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(e_tag),
            ..Default::default()
        }))
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let _ = fs::remove_file(self.object(&req.input.bucket, &req.input.key)?);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let mut deleted = Vec::new();
        for each in req.input.delete.objects {
            let _ = fs::remove_file(self.object(&req.input.bucket, &each.key)?);
            deleted.push(DeletedObject {
                key: Some(each.key),
                ..Default::default()
            });
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            ..Default::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        self.object(&req.input.bucket, &req.input.key)?;
        fs::create_dir_all(self.root.join(UPLOADS)).map_err(internal)?;
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            upload_id: Some(format!("upload-{}-{number}", std::process::id())),
            bucket: Some(req.input.bucket),
            key: Some(req.input.key),
            ..Default::default()
        }))
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let path = self.part(&req.input.upload_id, req.input.part_number);
        let content = collect(req.input.body).await?;
        let e_tag = self.write(&path, std::iter::once(Ok(content))).map_err(internal)?;
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(e_tag),
            ..Default::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let path = self.object(&req.input.bucket, &req.input.key)?;
        let listed = req
            .input
            .multipart_upload
            .and_then(|upload| upload.parts)
            .unwrap_or_default();
        let parts: Vec<PathBuf> = listed
            .iter()
            .filter_map(|part| part.part_number)
            .map(|n| self.part(&req.input.upload_id, n))
            .collect();
        if parts.is_empty() || parts.iter().any(|part| !part.is_file()) {
            return Err(s3_error!(InvalidPart));
        }
        let e_tag = self
            .write(&path, parts.iter().map(|part| fs::read(part).map(Bytes::from)))
            .map_err(internal)?;
        for part in parts {
            let _ = fs::remove_file(part);
        }
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            e_tag: Some(e_tag),
            bucket: Some(req.input.bucket),
            key: Some(req.input.key),
            ..Default::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        for number in 1..=10_000 {
            if fs::remove_file(self.part(&req.input.upload_id, number)).is_err() {
                break;
            }
        }
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}
