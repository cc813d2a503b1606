-- Runs that should be worked on and have no ticket in the queue: it was lost with a crash between two stores, or deleted.
select r.id
from runs r
where r.tenant_id = :tenant and r.id <> :but
  and (r.state = 'queued' and r.updated_at < now() - interval '2 minutes'
       or r.state = 'running' and r.lease_until < now() - interval '2 minutes')
  and not exists (
      select from pgqueuer q
      where q.status in ('queued', 'picked') and q.payload = convert_to(r.tenant_id || '/' || r.id, 'UTF8'))
limit 1000
