-- name: notify
-- $1 channels, $2 payloads.
select pg_notify(n.channel || '_' || i.channel_secret, n.payload)
from installation i, unnest($1::text[], $2::text[]) n (channel, payload)

-- name: channel_name
select $1::text || '_' || channel_secret from installation
