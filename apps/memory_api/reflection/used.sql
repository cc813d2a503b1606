-- The playbook a trace belongs to (the one it names, else the one its render came from, of its own project), with what
-- that render handed out.
select p.project_id, p.name, p.scope, p.sections, p.aliases, s.render_id, s.version, coalesce(s.keys, '{}') as keys
from playbooks p
left join servings s on s.tenant_id = :tenant and s.render_id = cast(:render as uuid) and s.scope = p.scope
where p.tenant_id = :tenant and p.project_id = :project and p.deleted_at is null
  and case when cast(:name as text) is null then s.render_id is not null else p.name = :name end
