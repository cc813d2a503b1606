-- Events of one tenant's traces: for each trace the number of the first, and all as a JSON array. One statement for any number.
insert into trace_events (tenant_id, trace_id, seq, event_id, event_type, content, timestamp, metadata, tool_name, error, agent)
select
    cast(:tenant as uuid), trace_id, seq, coalesce(event_id, 'e' || lpad(seq::text, greatest(4, length(seq::text)), '0')),
    event_type, content, timestamp, metadata, tool_name, error, agent
from
    unnest(cast(:trace_id as uuid[]), cast(:first as int[]), cast(:events as text[])) sent (trace_id, first, events),
    rows from (json_to_recordset(sent.events::json) as (
        event_id text, event_type text, content text, timestamp timestamptz, metadata jsonb, tool_name text, error jsonb, agent text
    )) with ordinality event (event_id, event_type, content, timestamp, metadata, tool_name, error, agent, place),
    lateral (select cast(first + place - 1 as int) as seq) numbered
returning 1
