//! The dictionary for the compression of header blocks (SPDY/3, 2.6.10.1).

/// Words of the dictionary that are written with their length before them.
const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// The rest of the dictionary, without lengths.
const REST: &str = "\
    1001012012022052063003023033043053063074024054064074084094104114124134144154164175025045\
    05203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request40\
    1 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 \
    Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, W\
    ed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/x\
    ml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sd\
    chcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary.
pub(super) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2048);
    for word in WORDS {
        bytes.extend(u32::try_from(word.len()).unwrap_or_default().to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(REST.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Adler-32 checksum in the header of every compressed stream of SPDY/3.
    #[test]
    fn the_dictionary_is_the_one_that_streams_name() {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in dictionary() {
            low = (low + u32::from(byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        assert_eq!((dictionary().len(), high << 16 | low), (1423, 0xe3c6_a7c2));
    }
}
