-- Whether there is the trace, and the serving of this playbook, that a verdict is said to be about.
select exists (
           select from traces t
           where t.tenant_id = :tenant and t.id = cast(:trace as uuid) and t.project_id = :project
       ) trace,
       exists (
           select from servings s
           join playbooks p on p.tenant_id = :tenant and p.scope = s.scope
           where s.tenant_id = :tenant and s.render_id = cast(:render as uuid)
             and p.project_id = :project and p.name = :playbook
       ) render
